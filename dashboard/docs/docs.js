// Shows the service's own description. Nothing is fetched from another host.
globalThis.SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#api',
  // By default Swagger UI asks a validator on the internet.
  validatorUrl: null,
  // Tokens belong on backend servers, so the page does not send requests.
  supportedSubmitMethods: [],
  defaultModelsExpandDepth: 0,
  docExpansion: 'list',
});
