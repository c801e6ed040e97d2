#!/bin/bash
# Give each rank files of its own for what it prints, and a working folder of its own if there is one.
set -eu
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?no launcher that this test knows}}
if [ -d "$RANK_NOTES/rank-$rank" ]; then cd "$RANK_NOTES/rank-$rank"; fi
exec "$@" >"$RANK_NOTES/out.$rank" 2>"$RANK_NOTES/err.$rank"
