/** Options that several commands have. */

export const JSON_OPTION = ['--json', 'print one JSON object'] as const;
export const APP_OPTION = ['--app <id>', 'the app, app_…'] as const;
export const JSON_LIST = ['--json', 'print one JSON object with the whole list'] as const;
