"""Tiny environments whose values are known."""

PROBE_ENVIRONMENTS = {  # as `environment.registry.TENSOR_ENVIRONMENTS`
    "probe/constant-reward": "probe.q_learning:ConstantReward",
    "probe/observation-reward": "probe.q_learning:ObservationReward",
    "probe/delayed-reward": "probe.q_learning:DelayedReward",
    "probe/best-action": "probe.q_learning:BestAction",
    "probe/observation-action": "probe.q_learning:ObservationAction",
    "probe/endless-reward": "probe.q_learning:EndlessReward",
    "probe/corridor": "probe.q_learning:Corridor",
    "probe/ring": "probe.q_learning:Ring",
    "probe/masked-action": "probe.on_policy:MaskedAction",
    "probe/masked-kinds": "probe.on_policy:MaskedKinds",
    "probe/action-kinds": "probe.on_policy:ActionKinds",
    "probe/continuous-action": "probe.on_policy:ContinuousAction",
    "probe/dict-observation": "probe.on_policy:DictObservation",
}
