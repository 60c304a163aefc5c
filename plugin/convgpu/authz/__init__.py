"""Whether a call of the Engine's API may pass.

`routes` finds the calls that matter, `go_json` and `container` read what they ask for, `gpu`, `host` and `hook` say
what is wrong with it, `site` holds the rules of the site, `judge` decides. What the judge asks of the world is declared
in `world`; `site_file`, `owners` and `nodes` are the parts of it that lie in files. The plugin serves the judge, and
`convgpu policy test` tries it without an Engine.
"""
