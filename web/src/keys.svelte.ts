import { untrack } from 'svelte'

/** What a key does, for the handler and for the list that `?` shows. */
export interface Key {
  key: string
  does: string
  run: () => void
}

/** The keys of what is on screen. Components add theirs with `useKeys`; the last that has a key gets it. */
class Keys {
  all = $state.raw<Key[]>([])

  constructor() {
    document.addEventListener('keydown', (pressed) => this.#press(pressed))
  }

  #press(pressed: KeyboardEvent): void {
    if (pressed.metaKey || pressed.ctrlKey || pressed.altKey || pressed.defaultPrevented) return
    if (isTyping(pressed.composedPath()[0]) || document.querySelector('dialog[open]') !== null) return
    if (pressed.key === 'Enter' && pressed.target instanceof Element && pressed.target.closest('a, button, summary')) return
    const found = this.all.findLast((one) => one.key === pressed.key)
    if (found === undefined) return
    pressed.preventDefault()
    found.run()
  }
}

/** Where a key goes, within the editor's shadow tree too. */
function isTyping(target: EventTarget | undefined): boolean {
  return target instanceof Element && target.closest('input:not([type=checkbox]), textarea, select, [contenteditable]') !== null
}

export const keys = new Keys()

/** Adds keys for as long as the calling component is there. */
export function useKeys(some: Key[]): void {
  $effect(() => {
    keys.all = [...untracked(), ...some]
    return () => {
      keys.all = untracked().filter((one) => !some.includes(one))
    }
  })
}

const untracked = (): Key[] => untrack(() => keys.all)
