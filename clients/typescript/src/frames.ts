import { UnexpectedAnswer } from './errors.js'

const MAX_FRAME_CHARS = 64 * 1024 * 1024

/** An event of a stream; `data` is its JSON, and empty for a place to resume from. */
export interface Frame {
  id: string
  data: string
}

/** Server-Sent Events (HTML Living Standard §9.2.6), parsed as they come. */
export class Frames {
  #rest = ''
  #id = ''
  #seen = ''
  #data: string[] = []
  #decoder = new TextDecoder()

  /** The frames that these bytes complete. */
  take(chunk: Uint8Array): Frame[] {
    const found: Frame[] = []
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split('\n')
    this.#rest = lines.pop() ?? ''
    if (this.#rest.length > MAX_FRAME_CHARS) throw new UnexpectedAnswer('an event of the stream is too long')
    for (const line of lines.map((one) => one.replace(/\r$/, ''))) {
      const colon = line.indexOf(':')
      const [field, value] = colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')]
      if (line === '') {
        if (this.#data.length > 0 || this.#id !== this.#seen) {
          found.push({ id: this.#id, data: this.#data.join('\n') })
        }
        this.#seen = this.#id
        this.#data = []
      } else if (field === 'data') this.#data.push(value)
      else if (field === 'id') this.#id = value
    }
    return found
  }
}
