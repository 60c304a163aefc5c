"""The plugin in the Engine: installed, upgraded, and everything taken off again."""
