"""Works with the API through a client that openapi-python-client made from the document.

Arguments: the folder of the client, the address, a token. Each answer must have been understood: the
client returns nothing for a status that the document does not describe.
"""

import sys

sys.path.insert(0, sys.argv[1])
from postrider_api import AuthenticatedClient
from postrider_api.api.dead_letters import list_dead_letters, resolve_dead_letter, show_dead_letter
from postrider_api.api.events import append_event, find_event, list_events
from postrider_api.api.jobs import create_job, list_jobs
from postrider_api.api.outboxes import list_outboxes, pause_outbox, resume_outbox, show_outbox
from postrider_api.api.session import whoami
from postrider_api.models import NewEventBody, Note, Problem

client = AuthenticatedClient(base_url=sys.argv[2], token=sys.argv[3], raise_on_unexpected_status=True)


def understood(answer):
    assert answer is not None, "an answer that the document does not describe"
    assert not isinstance(answer, Problem), answer
    return answer


assert understood(whoami.sync(client=client)).name == "ada"
names = [outbox.name for outbox in understood(list_outboxes.sync(client=client)).outboxes]
assert names == ["orders"], names
event = NewEventBody(
    aggregate_type="order",
    aggregate_id="größe/1",
    event_type="OrderPlaced",
    payload={"amount": 5},
    request_id="once",
)
appended = understood(append_event.sync("orders", client=client, body=event))
assert not appended.duplicate, appended
again = understood(append_event.sync("orders", client=client, body=event))
assert again.duplicate and again.id == appended.id, (appended, again)
many = [NewEventBody("order", str(number), "OrderPlaced", payload_text="text") for number in range(3)]
assert len(understood(append_event.sync("orders", client=client, body=many))) == 3
assert understood(show_outbox.sync("orders", client=client)).name == "orders"
understood(list_events.sync("orders", client=client))
understood(find_event.sync("orders", appended.event_id, client=client))
wrong = append_event.sync("nothing", client=client, body=event)
assert isinstance(wrong, Problem) and wrong.status == 404, wrong
letters = understood(list_dead_letters.sync("orders", client=client)).rows
assert len(letters) == 2, letters
letter = understood(show_dead_letter.sync("orders", letters[0].id, client=client))
assert letter.dead_letter.reason.value == "rejected", letter
understood(resolve_dead_letter.sync("orders", letters[0].id, client=client, body=Note(note="seen")))
understood(pause_outbox.sync("orders", client=client, body=Note(note="a break")))
understood(resume_outbox.sync("orders", client=client, body=Note(note="on")))
understood(list_jobs.sync(client=client))
print("all understood")
