import svelte from 'eslint-plugin-svelte'
import ts from 'typescript-eslint'
import config from './svelte.config.js'

export default ts.config(
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser, extraFileExtensions: ['.svelte'], svelteConfig: config } },
  },
  {
    rules: {
      'svelte/no-at-html-tags': 'error', // what executions hold is text, never markup
      'svelte/prefer-svelte-reactivity': 'off', // state is replaced as a whole ($state.raw), never changed within
      'max-lines': ['error', 500],
      'max-lines-per-function': ['error', 70],
    },
  },
  { files: ['**/*.test.ts'], rules: { 'max-lines-per-function': 'off' } },
)
