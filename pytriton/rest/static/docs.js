"use strict";

const routes = document.getElementById("routes");
window.ui = SwaggerUIBundle({
  url: routes.dataset.url,
  dom_id: "#routes",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  tryItOutEnabled: true,
  validatorUrl: null,
});
