"""Many models x benchmarks x methods: one task each, forecast, run and reported in one table.

Sweep file   models.yaml -> tasks                     tasks.py
forecast     requests, cost and hours of each task    forecast.py
run          on this machine, model by model          local.py
             on a Ray cluster                         cluster.py
             a Slurm script                           tasks.py
report       the table, what failed and why           report.py
"""
