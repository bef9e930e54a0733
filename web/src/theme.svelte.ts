const KEPT = 'noetl_theme'
const THEMES = ['system', 'light', 'dark'] as const
type Theme = (typeof THEMES)[number]

/** Light, dark, or as the system has it. */
class Themes {
  #chosen = $state<Theme>('system')

  constructor() {
    this.#choose(THEMES.find((one) => one === localStorage.getItem(KEPT)) ?? 'system')
  }

  get label(): string {
    return { system: 'Auto', light: 'Light', dark: 'Dark' }[this.#chosen]
  }

  next(): void {
    this.#choose(THEMES[(THEMES.indexOf(this.#chosen) + 1) % THEMES.length] ?? 'system')
    localStorage.setItem(KEPT, this.#chosen)
  }

  #choose(theme: Theme): void {
    this.#chosen = theme
    document.documentElement.dataset['theme'] = theme
  }
}

export const theme = new Themes()
