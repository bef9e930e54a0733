const NAMES = ['page', 'raised', 'line', 'edge', 'text', 'quiet', 'accent', 'good', 'bad', 'warn', 'chosen'] as const
export type Colours = Record<(typeof NAMES)[number], string>

/** The colours of the theme for what is drawn: a canvas knows no variables of CSS. */
class Palette {
  colours = $state.raw<Colours>(this.#read())

  constructor() {
    const look = (): void => void (this.colours = this.#read())
    new MutationObserver(look).observe(document.documentElement, { attributeFilter: ['data-theme'] })
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', look)
  }

  #read(): Colours {
    const probe = document.createElement('span')
    document.body.append(probe)
    const found = NAMES.map((name) => {
      probe.style.color = `var(--${name})`
      return [name, getComputedStyle(probe).color]
    })
    probe.remove()
    return Object.fromEntries(found) as Colours
  }
}

export const palette = new Palette()

/** Of a status, or of a wait. */
export function colourOf(status: string, colours: Colours): string {
  switch (status) {
    case 'done':
    case 'reused':
      return colours.good
    case 'failed':
      return colours.bad
    case 'running':
      return colours.accent
    case 'waiting':
      return colours.warn
    default:
      return colours.edge
  }
}

/** A canvas of this size in CSS pixels, empty and as sharp as the screen. */
export function cleared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = Math.min(devicePixelRatio, 2)
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)]
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows]
  const context = canvas.getContext('2d')
  context?.setTransform(ratio, 0, 0, ratio, 0, 0)
  context?.clearRect(0, 0, width, height)
  return context
}
