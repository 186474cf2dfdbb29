"""Optuna's default sampler, for another process: prints one θ per line, and reads its regret."""

import sys

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
seed, low, high = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
while True:
    trial = study.ask()
    print(repr(trial.suggest_float("theta", low, high, log=True)), flush=True)
    heard = sys.stdin.readline()
    if not heard.strip():
        break
    study.tell(trial, float(heard))
print(repr(study.best_params["theta"]), flush=True)
