const KEPT = 'noetl_csrf_token'

/** What proves that a change comes from this page. Shared by the tabs of this origin, kept until sign-out. */
export const csrfToken = (): string => localStorage.getItem(KEPT) ?? ''

export function keepCsrfToken(token: string | null): void {
  if (token === null) localStorage.removeItem(KEPT)
  else localStorage.setItem(KEPT, token)
}
