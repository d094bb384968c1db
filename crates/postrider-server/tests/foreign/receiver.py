"""A receiver made of other people's kits: Standard Webhooks checks each request, CloudEvents reads it.

Prints its port, then a line of JSON for each request. What a kit refuses is answered with 422, which
makes the event a dead letter.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook

WEBHOOK = Webhook(sys.argv[1])


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            WEBHOOK.verify(body, dict(self.headers.items()), json_parse=False)
            event = from_http_event(HTTPMessage(headers=dict(self.headers.items()), body=body))
            attributes = {name: str(value) for name, value in event.get_attributes().items()}
            said = {"attributes": attributes, "data": event.get_data()}
            status = 200
        except Exception as error:
            said, status = {"error": repr(error)}, 422
        print(json.dumps(said), flush=True)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
