/** A piece of a text; with an address it is a link. */
export interface Piece {
  text: string
  href?: string
}

/** Ids of executions, and addresses of the web: nothing else is a link, whatever a text says. */
const LINKS = /\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b|\bhttps?:\/\/[^\s<>"'`\\{}|^]+/g
/** Of a longer text the rest has no links: the browser would search it each time it is drawn. */
const SEARCHED = 20_000

/** A text in pieces: ids of executions lead to them, addresses out. What ends a sentence ends no address. */
export function linksIn(text: string): Piece[] {
  const pieces: Piece[] = []
  let end = 0
  for (const { 0: found, index } of text.slice(0, SEARCHED).matchAll(LINKS)) {
    const link = found.replace(/[.,;:!?)\]]+$/, '')
    if (index > end) pieces.push({ text: text.slice(end, index) })
    pieces.push({ text: link, href: link.startsWith('http') ? link : `/executions/${link}` })
    end = index + link.length
  }
  return end < text.length ? [...pieces, { text: text.slice(end) }] : pieces
}
