"""Who has what in a sweep on a cluster: no order of answers and deaths loses a question or hands out one that is answered."""

from random import Random

import pytest

from eval_harness.sweep.leases import MOST_DEATHS, Leases


@pytest.mark.parametrize("seed", range(40))
def test_every_question_is_answered_once_whoever_dies(seed):
    random = Random(seed)
    leases, wanted, answered = Leases(), set(), []
    for task in range(random.randrange(1, 6)):
        cases = sorted(random.choices(range(12), k=random.randrange(1, 40)))
        instances = [(row, 0) for row in range(len(cases))]
        leases.add(task, f"model {task % 3}", instances, cases, workers=random.randrange(1, 4))
        wanted |= {(task, instance) for instance in instances}
        for lease in leases.waiting:
            if lease.task == task:  # a case is never cut
                own = {cases[row] for row, _ in lease.instances}
                assert [(row, 0) for row in range(len(cases)) if cases[row] in own] == list(lease.instances)
    working, count = {}, 0
    while leases.waiting or leases.held:
        free = [name for name in working if name not in leases.held]
        event = random.choice(["take", "take", "done", "die"])
        if event == "take" and leases.waiting:
            if not free or leases.take(random.choice(free), working[free[0]]) is None:
                count += 1
                model = leases.next_model(working.values())
                working[f"w{count}"] = model
                assert leases.take(f"w{count}", model)
        elif leases.held and event in ("done", "die"):
            name = random.choice(sorted(leases.held))
            lease = leases.held[name]
            done = (
                lease.instances if event == "done" else lease.instances[: random.randrange(1, len(lease.instances) + 1)]
            )
            answered += [(lease.task, instance) for instance in done]
            if event == "done":
                leases.done(name)
            else:
                assert leases.died(name, lease.instances[len(done) :]) is None
                del working[name]
    assert len(answered) == len(set(answered))
    assert set(answered) == wanted
    assert not any(leases.is_open(task) for task in range(6))


def test_a_lease_that_kills_every_worker_fails_its_task_alone():
    leases = Leases()
    leases.add(1, "a", [(0, 0), (1, 0)], [0, 0], 1)
    leases.add(2, "a", [(0, 0)], [0], 1)
    for death in range(MOST_DEATHS):
        lease = leases.take("w", "a")
        assert lease.task == 1
        given_up = leases.died("w", lease.instances)
        assert (given_up is not None) == (death == MOST_DEATHS - 1)
    assert leases.failed == {1}
    assert leases.take("w", "a").task == 2
    leases.done("w")
    assert leases.next_model([]) is None


def test_a_free_worker_takes_the_model_with_the_fewest_workers():
    leases = Leases()
    for task, model in enumerate(("a", "b", "c")):
        leases.add(task, model, [(0, 0)], [0], 1)
    assert leases.next_model(["a", "a", "b"]) == "c"
    assert leases.next_model(["a", "c"]) == "b"
