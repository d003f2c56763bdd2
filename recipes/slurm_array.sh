#!/usr/bin/env bash
# One run in shares on a Slurm cluster: every task of the array asks its share of the cases, and the one that finishes last scores the run.
# A task that was killed goes on where it stopped when it is sent again (`scontrol requeue`, or the same sbatch command).
#
#   mkdir -p logs
#   sbatch --export=ALL,BENCHMARK=mediconfusion,DATA=ORG/mediconfusion,MODEL=org/some-vlm,RUN=runs/some-vlm recipes/slurm_array.sh
#
#SBATCH --job-name=medprobe
#SBATCH --array=0-3
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem=64G
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --output=logs/%x-%A-%a.log
set -euo pipefail

# A range that starts at 1 gives the same shares as one that starts at 0. Slurm sets these; RUN has to be on a disk that all nodes see.
export RANK=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN)) WORLD_SIZE=$SLURM_ARRAY_TASK_COUNT

medprobe eval "$BENCHMARK" --data "$DATA" --model "$MODEL" --out "$RUN"
