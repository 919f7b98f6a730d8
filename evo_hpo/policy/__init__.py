"""Who acts: `base` the frozen model · `chat` its turns · `adapters` and `blocks` the population on it · `policy` all together ·
`sampling` and `noise` · `cache` · `exchange` with peft · `tiny` the base that ships"""
