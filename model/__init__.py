"""Networks: functions of one input batch and weights, with no notion of reward or time."""
