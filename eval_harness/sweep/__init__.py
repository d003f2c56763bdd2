"""Run many models on many benchmarks with many methods, and report them in one table.

Each combination is a task.

Sweep file   models.yaml -> tasks                     tasks.py
forecast     requests, cost and hours of each task    progress.py
run          on this machine, or on a Ray cluster     execution.py
             a Slurm script                           tasks.py
report       scores, failed tasks and reasons         progress.py
"""
