#!/usr/bin/env bash
# One run on a GPU of the Hub's Jobs, and the pull request with its answers. The run folder is in a bucket, so a job that was cut short
# goes on where it stopped. IMAGE: built from recipes/Dockerfile and pushed where the Hub can pull it. HF_TOKEN may open pull requests.
#
#   hf buckets create ORG/runs
#   IMAGE=... BENCHMARK=mediconfusion DATA=ORG/mediconfusion MODEL=org/some-vlm STORE=ORG/results BUCKET=ORG/runs recipes/hf_job.sh
#
# Further options of `hf jobs run` may follow, e.g. --dry-run, which prints the job and starts nothing.
set -euo pipefail

run=/runs/$BENCHMARK-${MODEL//\//--}
hf jobs run --flavor "${FLAVOR:-a10g-large}" --timeout "${TIMEOUT:-6h}" --detach \
    --secrets HF_TOKEN --volume "hf://buckets/$BUCKET:/runs" "$@" \
    -- "$IMAGE" bash -c "medprobe eval $BENCHMARK --data $DATA --model $MODEL --out $run && medprobe submit $run --to $STORE"
