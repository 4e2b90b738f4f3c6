#!/bin/sh
# The GPUs of this machine in the form that Spark's resource discovery reads
# (spark.worker.resource.gpu.discoveryScript, spark.executor.resource.gpu.discoveryScript):
#   {"name": "gpu", "addresses": ["0", "1"]}
# An empty list where nvidia-smi is missing or finds nothing. Where CUDA_VISIBLE_DEVICES is set, only what it names, as it
# names it (numbers or UUIDs): these are the addresses that a worker in that environment can find again.
nvidia-smi --query-gpu=index,uuid --format=csv,noheader 2>/dev/null |
  awk -F ', *' -v limited="${CUDA_VISIBLE_DEVICES+yes}" -v visible="${CUDA_VISIBLE_DEVICES-}" '
    $1 ~ /^ *[0-9]+ *$/ { gsub(/ /, "", $1); order[++found] = $1; uuids[$1] = $2 }
    END {
      if (limited) {
        count = split(visible, named, / *, */)
        for (i = 1; i <= count; i++) {
          there = 0
          for (j = 1; j <= found; j++)
            if (named[i] == order[j] || (named[i] ~ /^GPU-/ && index(uuids[order[j]], named[i]) == 1)) there = 1
          if (!there) break  # CUDA, too, ends its list at the first name that it does not know
          list = list separator "\"" named[i] "\""; separator = ", "
        }
      } else
        for (j = 1; j <= found; j++) { list = list separator "\"" order[j] "\""; separator = ", " }
      printf "{\"name\": \"gpu\", \"addresses\": [%s]}\n", list
    }'
