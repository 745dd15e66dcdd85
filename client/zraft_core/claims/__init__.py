"""Marshal's claims, corrected: who consumes a partition, decided inside the partition's replicated state.

Pure. `state.Claims` changes only by applying commands at a log position and a log time; `expiry` is what the leader
does around it. docs/explanation/claims.md has the protocol and the schedules that break without its rules.
"""
