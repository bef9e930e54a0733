import { client } from '../../api/client'
import type { Playbook } from 'noetl-stream-client'

/** The playbooks that lines may name, read when a line is first entered; of very many the first ones, and those asked for. */
class KnownPlaybooks {
  items = $state.raw<readonly Playbook[]>([])
  #asked = new Set<string>()

  /** Reads those that begin so, once. */
  async look(prefix: string): Promise<void> {
    if (this.#asked.has(prefix)) return
    this.#asked.add(prefix)
    try {
      const { items } = await client.listPlaybooks({ prefix, limit: 100 })
      const found = new Map([...this.items, ...items].map((one) => [one.path, one]))
      this.items = [...found.values()]
    } catch {
      this.#asked.delete(prefix) // a line is completed by what is known
    }
  }
}

export const knownPlaybooks = new KnownPlaybooks()
