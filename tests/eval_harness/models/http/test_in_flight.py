"""`--in-flight N`: never more than N requests, and N from the second question on."""

import threading
import time

from tests.chaos.server import ChaosServer
from tests.eval_harness.models.http.asking import model, request, text_of


def test_in_flight_is_bounded_and_retry_after_is_respected():
    with ChaosServer(delay=0.02) as server:
        assert len(list(model(server, in_flight=3).generate([request(i) for i in range(20)]))) == 20
        assert server.most <= 3
    with ChaosServer(["429"], retry_after="0.3") as server:
        start = time.monotonic()
        list(model(server, in_flight=1).generate([request()]))
        assert time.monotonic() - start >= 0.3


def test_closing_the_iterator_stops_sending():
    closed = threading.Event()

    def answer(body):
        assert text_of(body) in ("Question 0?", "Question 1?") or closed.wait(200)
        return "A"

    with ChaosServer(answer=answer) as server:
        answers = model(server, in_flight=2, timeout=250).generate([request(i) for i in range(200)])
        assert [next(answers).question_id for _ in range(2)] == ["0", "1"]
        # Closing the generator cancels the requests in flight.
        answers.close()
        closed.set()
        time.sleep(0.3)
        assert sum(server.asked.values()) <= 2 + 2


def test_all_slots_in_flight_are_used_after_the_first_answer():
    # The server replies only once 48 requests are in flight.
    all_there = threading.Barrier(48, timeout=200)

    def answer(body):
        assert text_of(body) == "Question 0?" or all_there.wait() >= 0
        return "A"

    with ChaosServer(answer=answer) as server:
        responses = list(model(server, in_flight=48, timeout=250).generate(request(i) for i in range(1 + 48)))
    assert len(responses) == 49 and not all_there.broken
