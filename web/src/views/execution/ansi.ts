/** Text as a terminal shows it: a part in one look. `look` are names of classes, which are fixed: nothing of the text is in them. */
export interface Painted {
  text: string
  look: string
}

const SEQUENCE = /\x1b(?:\[([0-?]*)[ -/]*([@-~]?)|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]*[0-~]?)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]/g

/** The parts of a line that a program has written for a terminal: colours and weights as looks, without what else it obeys. */
export function painted(line: string): Painted[] {
  const shown = atLast(line)
  const parts: Painted[] = []
  const looks = new Map<string, string>()
  let from = 0
  const add = (to: number): void => {
    if (to > from) parts.push({ text: shown.slice(from, to), look: [...looks.values()].join(' ') })
  }
  for (const found of shown.matchAll(SEQUENCE)) {
    add(found.index)
    from = found.index + found[0].length
    if (found[2] === 'm') paint(looks, (found[1] ?? '').split(/[;:]/).map(Number))
  }
  add(shown.length)
  return parts
}

/** What a line shows, without looks. */
export const plain = (line: string): string => atLast(line).replace(SEQUENCE, '')

/** What stands at last where a line was written over: `10 %\r20 %`. */
const atLast = (line: string): string => line.replace(/\r+$/, '').split('\r').at(-1) ?? ''

const WEIGHTS: Record<number, string> = { 1: 'bold', 2: 'faint', 3: 'slanted', 4: 'underlined' }
const ENDS: Record<number, string[]> = { 22: ['bold', 'faint'], 23: ['slanted'], 24: ['underlined'], 39: ['fg'], 49: ['bg'] }

function paint(looks: Map<string, string>, codes: number[]): void {
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0
    const weight = WEIGHTS[code]
    if (weight) looks.set(weight, weight)
    else if (code === 0) looks.clear()
    else if (ENDS[code]) for (const one of ENDS[code]) looks.delete(one)
    else if (code === 38 || code === 48) at += extended(looks, code === 38 ? 'fg' : 'bg', codes.slice(at + 1))
    else colour(looks, code)
  }
}

function colour(looks: Map<string, string>, code: number): void {
  const tens = Math.floor(code / 10)
  if (code % 10 > 7) return
  if (tens === 3 || tens === 9) looks.set('fg', `fg${code % 10}`)
  else if (tens === 4 || tens === 10) looks.set('bg', `bg${code % 10}`)
}

/** Of 256 colours, or of all, the one of eight that is nearest; how many codes say it. */
function extended(looks: Map<string, string>, name: string, [form, ...values]: number[]): number {
  if (form === 5) {
    looks.set(name, `${name}${ofPalette(values[0] ?? 0)}`)
    return 2
  }
  const [red = 0, green = 0, blue = 0] = values
  looks.set(name, `${name}${bits(red > 127, green > 127, blue > 127)}`)
  return form === 2 ? 4 : 1
}

function ofPalette(index: number): number {
  if (index < 16) return index % 8
  if (index > 231) return index > 243 ? 7 : 0
  const cube = index - 16
  return bits(cube / 36 >= 3, (cube / 6) % 6 >= 3, cube % 6 >= 3)
}

const bits = (red: boolean, green: boolean, blue: boolean): number => Number(red) + 2 * Number(green) + 4 * Number(blue)

/** Some characters of parts: from one place of their text up to before another. */
export function cut(parts: readonly Painted[], from: number, to: number): Painted[] {
  let at = 0
  return parts.flatMap(({ text, look }) => {
    const [begins, ends] = [Math.max(0, from - at), Math.min(text.length, to - at)]
    at += text.length
    return begins < ends ? [{ text: text.slice(begins, ends), look }] : []
  })
}
