"""Many models x benchmarks x methods: one task each, forecast, run and told in one table.

Sweep file   models.yaml -> tasks                     tasks.py
forecast     what each task will ask, cost, hours     forecast.py
run          here, one model after the other          local.py
             on a Ray cluster                         cluster.py
             a script for Slurm                       tasks.py
report       the table, what failed and why           report.py
"""
