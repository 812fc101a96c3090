"""Other libraries doing the same work, each a module of programs that print one JSON object.

Every program here runs the competitor's own, unmodified algorithm on CartPole-v1, PQN on
Breakout, with settings from one shared command line, times its steady state only, and prints the
result as the last line of standard output::

    python -m kytolly.benchmarks.competitors.sb3 dqn --env-steps 20000 --batch-size 128
    python -m kytolly.benchmarks.competitors.sb3 ppo --env-steps 20000
    python -m kytolly.benchmarks.competitors.sb3 atari --env-steps 2000
    python -m kytolly.benchmarks.competitors.sb3 acting --algorithm dqn --path model.zip --make
    python -m kytolly.benchmarks.competitors.rejax dqn --env-steps 200000
    python -m kytolly.benchmarks.competitors.rejax ppo --env-steps 200000
    python -m kytolly.benchmarks.competitors.rejax pqn --env-steps 200000
    python -m kytolly.benchmarks.competitors.purejaxrl dqn --checkout PATH --env-steps 200000
    python -m kytolly.benchmarks.competitors.purejaxrl ppo --checkout PATH --env-steps 200000
    python -m kytolly.benchmarks.competitors.jax_update --updates 20000
    python -m kytolly.benchmarks.competitors.minatar gymnax --game Breakout

Nothing here imports TensorFlow, and `program.require` keeps others from importing it: a competitor
shares its process with nobody.
"""
