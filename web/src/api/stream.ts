import { ApiError, ClientError } from 'noetl-stream-client'

/** How long it is waited where a client has tried in vain for a minute. */
const REST_MS = 10_000

/**
 * Takes what a stream of the client gives, while the page is visible: a browser has six connections to a host, and
 * tabs in the background would hold them.
 *
 * @param open the stream, from where it was left.
 * @param ended that it has ended for good, or is refused: by rights, or because what it follows is gone.
 * @returns what ends it.
 */
export function follow<Item>(
  open: (abort: AbortSignal) => AsyncIterable<Item>,
  take: (one: Item) => void,
  ended: (refused: ApiError | null) => void = () => undefined,
): () => void {
  const stopped = new AbortController()
  void followed(open, take, stopped.signal).then((refused) => stopped.signal.aborted || ended(refused))
  return () => stopped.abort()
}

async function followed<Item>(
  open: (abort: AbortSignal) => AsyncIterable<Item>,
  take: (one: Item) => void,
  stopped: AbortSignal,
): Promise<ApiError | null> {
  for (;;) {
    await until('visibilitychange', () => !document.hidden, stopped)
    if (stopped.aborted) return null
    const left = new AbortController()
    void until('visibilitychange', () => document.hidden, AbortSignal.any([stopped, left.signal])).then(() => left.abort())
    try {
      for await (const one of open(left.signal)) take(one)
      return null
    } catch (error) {
      if (left.signal.aborted) continue
      if (!(error instanceof ClientError)) throw error
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) return error
      await new Promise((resolve) => setTimeout(resolve, REST_MS))
    } finally {
      left.abort()
    }
  }
}

/** Resolves once it is so, or the signal is aborted. */
function until(event: string, isSo: () => boolean, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (!isSo() && !signal.aborted) return
      document.removeEventListener(event, look)
      resolve()
    }
    document.addEventListener(event, look)
    signal.addEventListener('abort', look, { once: true })
    look()
  })
}
