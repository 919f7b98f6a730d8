"""Who acts: `base` the frozen model · `chat` its turns · `adapters`, `blocks` the population on it · `policy`
· `sampling` and `noise` · `cache` · `exchange` with peft · `scorers` on disk · `tiny` the base that ships"""
