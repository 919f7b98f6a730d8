"""Who acts: `base` the frozen model · `chat` its turns · `adapters`, `blocks` the population on it · `policy`
· `sampling` and `noise` · `cache` · `exchange` with peft · `tiny` the base that ships"""
