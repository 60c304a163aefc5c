"""Authorization: decides whether a call of the Engine's API may pass.

The parts, from the top; each imports only from those below it (import-linter enforces it):

- `judge`: handles each kind of call; `admission` lets a start pass within the quotas of its user and labels.
- `quotas`: what those are used for.
- `checks`: pure functions from a `Subject` to the refusals that speak against it.
- `subject`: what one judgement is about, read once from the request, the Engine, the host and the scheduler.
- `requests` reads bodies and addresses, `facts` files of the host, `site` the rules of the site.
- `ports` declares what is asked of the Engine, the host and the scheduler; `verdict` the decision.

The plugin serves the judge, and `convgpu policy test` tries it without an Engine.
"""
