"""Hard knocks for cgr: kills, full disks, damaged files, hostile models, engines, upstreams and clients.

`python -m torture` tries all of them, `python -m torture --only kill --seed 7 --times 200` one of them.
See docs/reliability.md.
"""
