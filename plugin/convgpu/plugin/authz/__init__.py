"""Whether a call of the Engine's API may pass.

`routes` finds the calls that matter, `go_json` and `container` read what they ask for, `gpu`, `host` and `hook` say
what is wrong with it, `site` holds the rules of the site, `judge` decides. All of these are pure; `engine_view`,
`site_file`, `owners` and `nodes` bring in the world.
"""
