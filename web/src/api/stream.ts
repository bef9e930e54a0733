import { connection } from './connection.svelte'
import { Refused, send } from './client'

export interface Streamed {
  id: string
  name: string
  data: string
}

/** The events in a part of a stream, and what is left of it. */
export function parsed(text: string): { events: Streamed[]; rest: string } {
  const blocks = text.split('\n\n')
  const rest = blocks.pop() ?? ''
  return { events: blocks.map(event).filter((one) => one.id !== '' || one.data !== ''), rest }
}

function event(block: string): Streamed {
  const found: Streamed = { id: '', name: '', data: '' }
  for (const line of block.split('\n')) {
    const [field, value] = [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).replace(/^ /, '')]
    if (field === 'id') found.id = value
    else if (field === 'event') found.name = value
    else if (field === 'data') found.data = found.data === '' ? value : `${found.data}\n${value}`
  }
  return found
}

const FIRST_RETRY_MS = 500
const MOST_RETRY_MS = 10_000

export interface Following {
  /** The events of one read, those without data left out. */
  events: (some: Streamed[]) => void
  /** The stream has ended for good: there will be no more events. */
  ended?: () => void
  /** Asked when the stream was closed in order: whether that was its end, for streams that do not answer 204. */
  isOver?: () => Promise<boolean>
  /** It is refused: by rights, or because what it follows is gone. */
  refused?: (error: Refused) => void
}

/**
 * Follows Server-Sent Events, over breaks of the connection, while the page is visible: a browser has six connections
 * to a host, and tabs in the background would hold them.
 *
 * @returns what ends it.
 */
export function follow(url: string, following: Following): () => void {
  const stopped = new AbortController()
  void followed(url, following, stopped.signal)
  return () => stopped.abort()
}

async function followed(url: string, following: Following, stopped: AbortSignal): Promise<void> {
  let last = ''
  let retryMs = FIRST_RETRY_MS
  while (!stopped.aborted) {
    await shown(stopped)
    const hidden = new AbortController()
    const hide = (): void => {
      if (document.hidden) hidden.abort()
    }
    document.addEventListener('visibilitychange', hide)
    try {
      const headers: Record<string, string> = last ? { 'Last-Event-ID': last } : {}
      const response = await send('GET', url, { headers, signal: AbortSignal.any([stopped, hidden.signal]) })
      for await (const events of read(response)) {
        retryMs = FIRST_RETRY_MS
        last = events.at(-1)?.id || last
        const some = events.filter((one) => one.data !== '')
        if (some.length > 0) following.events(some)
      }
      if (response.status === 204 || (await following.isOver?.())) return following.ended?.()
    } catch (error) {
      if (stopped.aborted) return
      if (error instanceof Refused && error.status >= 400 && error.status < 500 && error.status !== 429) {
        return following.refused?.(error)
      }
      if (!hidden.signal.aborted) connection.lost()
    } finally {
      document.removeEventListener('visibilitychange', hide)
    }
    if (hidden.signal.aborted) continue
    await pause(retryMs, stopped)
    retryMs = Math.min(retryMs * 2, MOST_RETRY_MS)
  }
}

async function* read(response: Response): AsyncGenerator<Streamed[]> {
  if (response.body === null) return
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const { events, rest } = parsed(text + value)
    text = rest
    if (events.length > 0) yield events
  }
}

function shown(stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (!document.hidden || stopped.aborted) return resolve()
    const look = (): void => {
      if (document.hidden && !stopped.aborted) return
      document.removeEventListener('visibilitychange', look)
      resolve()
    }
    document.addEventListener('visibilitychange', look)
    stopped.addEventListener('abort', look, { once: true })
  })
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    stopped.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true })
  })
}
