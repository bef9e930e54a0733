import type { Net } from './layout'
import { place } from './place'

onmessage = (message: MessageEvent<{ id: number; graph: Net }>) => {
  postMessage({ id: message.data.id, layout: place(message.data.graph) })
}
