import { addressOf, viewAt, type View } from './views'

/** The address of the page, as state. */
class Address {
  view = $state.raw<View>(viewAt(location.pathname, location.search))

  constructor() {
    addEventListener('popstate', () => this.#look())
    document.addEventListener('click', (click) => this.#follow(click))
  }

  go(view: View): void {
    history.pushState(null, '', addressOf(view))
    this.#look()
  }

  /** The same view with something else chosen: "back" does not lead to what was there. */
  replace(view: View): void {
    history.replaceState(null, '', addressOf(view))
    this.#look()
  }

  /** To an address of the page, as a link to it does. */
  follow(href: string): void {
    history.pushState(null, '', href)
    this.#look()
  }

  #look(): void {
    this.view = viewAt(location.pathname, location.search)
  }

  /** Links within the page load nothing. */
  #follow(click: MouseEvent): void {
    const link = click.target instanceof Element ? click.target.closest('a') : null
    const plain = click.button === 0 && !click.metaKey && !click.ctrlKey && !click.shiftKey && !click.altKey
    if (link === null || !plain || click.defaultPrevented || link.target !== '' || link.hasAttribute('download')) return
    if (link.origin !== location.origin || link.pathname.startsWith('/api/')) return
    click.preventDefault()
    this.follow(link.href)
    window.scrollTo(0, 0)
  }
}

export const address = new Address()
