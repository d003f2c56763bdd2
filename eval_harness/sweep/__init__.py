"""Run many models on many benchmarks with many methods, and report them in one table.

Each combination is a task.

Sweep file   models.yaml -> tasks                                   tasks.py
forecast     requests, cost and hours of each task                  tasks.py
run          on this machine, on a Ray cluster, or a Slurm script   execution.py
report       scores, failed tasks and reasons                       tasks.py
"""
