import { address, segment } from '../../api/client'
import { logsOf } from '../../api/executions'
import { follow } from '../../api/stream'
import type { LogLine } from '../../api/types'

const MOST = 20_000

/** What tasks write, as it comes; of very many lines the newest. */
export class LiveLog {
  lines = $state.raw<LogLine[]>([])
  dropped = $state(0)
  failure = $state.raw<unknown>(null)
  #coming: LogLine[] = []
  #frame = 0
  #last = '0'
  readonly end: () => void

  constructor(id: string, chosen: { step: string; iteration: string; grep: string }) {
    const stop = follow(address(`/executions/${segment(id)}/logs/stream`, chosen), {
      events: (some) => this.#add(some.map((one) => JSON.parse(one.data) as LogLine)),
      isOver: async () => (await logsOf(id, { after: this.#last, limit: '1' })).state === 'ended',
      refused: (error) => (this.failure = error),
    })
    this.end = () => {
      stop()
      cancelAnimationFrame(this.#frame)
    }
  }

  #add(some: LogLine[]): void {
    this.#coming.push(...some)
    this.#last = some.at(-1)?.id ?? this.#last
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0
      const all = [...this.lines, ...this.#coming]
      this.#coming = []
      this.dropped += Math.max(0, all.length - MOST)
      this.lines = all.slice(-MOST)
    })
  }
}
