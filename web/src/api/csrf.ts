const KEPT = 'noetl_csrf_token'
const ANSWERS_MS = 500

/** The other tabs of this origin: what they know is on no disk, and ends with the last of them. */
const tabs = new BroadcastChannel(KEPT)
const QUESTION = 'question'

/** What proves that a change comes from this page; empty when nobody has signed in. */
export const csrfToken = (): string => sessionStorage.getItem(KEPT) ?? ''

/** Keeps it here and in the other open tabs: they use the same session. */
export function shareCsrfToken(token: string): void {
  sessionStorage.setItem(KEPT, token)
  tabs.postMessage(token)
}

/** Calls `then` each time another tab has signed in, or says what it knows. */
export function onSharedCsrfToken(then: () => void): void {
  tabs.addEventListener('message', ({ data }: MessageEvent<string>) => data !== '' && data !== QUESTION && then())
}

/** Forgets it in every tab. */
export function forgetCsrfToken(): void {
  sessionStorage.removeItem(KEPT)
  tabs.postMessage('')
}

/** Whether this tab has it, or an open tab that has it answers. */
export async function findCsrfToken(): Promise<boolean> {
  if (csrfToken() === '') {
    await new Promise<void>((resolve) => {
      tabs.addEventListener('message', () => csrfToken() !== '' && resolve())
      tabs.postMessage(QUESTION)
      setTimeout(resolve, ANSWERS_MS)
    })
  }
  return csrfToken() !== ''
}

tabs.addEventListener('message', ({ data }: MessageEvent<string>) => {
  if (data === '') sessionStorage.removeItem(KEPT)
  else if (data !== QUESTION) sessionStorage.setItem(KEPT, data)
  else if (csrfToken() !== '') tabs.postMessage(csrfToken())
})
