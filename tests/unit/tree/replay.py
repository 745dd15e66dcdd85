"""A process that plays one random history and prints what came of it; see test_digest."""

from __future__ import annotations

import random
from hashlib import sha256

from tests.unit.tree.model import Model
from tests.unit.tree.scenario import Scenario
from tests.unit.tree.test_against_model import command_of, plain, random_part
from zraft_core.errors import Code


def main() -> None:
    rng = random.Random(7)
    scenario, model = Scenario(), Model()
    told = sha256()
    sessions = [scenario.session]
    for number in range(600):
        if number % 100 == 50:
            sessions.append(scenario.new_session())
        session = rng.choice(sessions)
        op = ("multi", tuple(random_part(rng, model) for _ in range(rng.randint(1, 4))))
        result = scenario.run(command_of(op), session)
        model.apply(op, session.id, scenario.machine.last_zxid, scenario.wall_time)
        told.update(repr((plain(result), scenario.machine.events)).encode())
        scenario.machine.events.clear()
        if number % 150 == 149:
            closing = sessions.pop(0)
            assert scenario.close(closing) is Code.OK
            model.apply(("end",), closing.id, scenario.machine.last_zxid, scenario.wall_time)
    print(hex(scenario.machine.digest()))
    print(sha256(repr(scenario.machine.image()).encode()).hexdigest())
    print(told.hexdigest())


if __name__ == "__main__":
    main()
