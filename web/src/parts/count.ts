/** A number for people, in groups of three: `12,345`. */
export const count = (number: number): string => number.toLocaleString('en')
