import type { Net } from './layout'
import { placeInLines } from './place'

onmessage = (message: MessageEvent<{ id: number; graph: Net }>) => {
  postMessage({ id: message.data.id, layout: placeInLines(message.data.graph) })
}
