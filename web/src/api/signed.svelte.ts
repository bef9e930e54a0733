import type { Refused } from './client'

/** Whether the browser's session has ended while the page was looked at. All calls and streams tell, and none is made after. */
class Signed {
  /** How the gateway refuses what is asked since; null while it does not. */
  out = $state.raw<Refused | null>(null)

  refused(why: Refused): void {
    this.out ??= why
  }

  /** Somebody has signed in. */
  in(): void {
    this.out = null
  }
}

export const signed = new Signed()
