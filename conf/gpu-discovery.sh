#!/bin/sh
# The GPUs of this machine in the form that Spark's resource discovery reads
# (spark.worker.resource.gpu.discoveryScript, spark.executor.resource.gpu.discoveryScript):
#   {"name": "gpu", "addresses": ["0", "1"]}
# An empty list where nvidia-smi is missing or finds nothing.
addresses=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null |
  sed -n 's/^ *\([0-9][0-9]*\) *$/"\1"/p' | paste -s -d , -)
printf '{"name": "gpu", "addresses": [%s]}\n' "$addresses"
