import type { LogChoice, LogLine } from 'noetl-stream-client'
import { client } from '../../api/client'
import { follow } from '../../api/stream'

const MOST = 20_000

/** What tasks write, as it comes; of very many lines the newest. */
export class LiveLog {
  lines = $state.raw<LogLine[]>([])
  dropped = $state(0)
  failure = $state.raw<unknown>(null)
  #coming: LogLine[] = []
  #frame = 0
  readonly end: () => void

  constructor(id: string, chosen: LogChoice) {
    let last: string | undefined
    const stop = follow(
      (abort) => client.execution(id).logs({ ...chosen, follow: true, abort, ...(last && { after: last }) }),
      (line) => {
        last = line.id
        this.#add(line)
      },
      (refused) => (this.failure = refused),
    )
    this.end = () => {
      stop()
      cancelAnimationFrame(this.#frame)
    }
  }

  #add(line: LogLine): void {
    this.#coming.push(line)
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0
      const all = [...this.lines, ...this.#coming]
      this.#coming = []
      this.dropped += Math.max(0, all.length - MOST)
      this.lines = all.slice(-MOST)
    })
  }
}
