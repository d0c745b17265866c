"use strict";

// The colours are those that the dashboard was set to, or those of the system.
function isDark() {
  let theme = null;
  try {
    theme = localStorage.getItem("theme");
  } catch {
    // storage may be off
  }
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

const applyTheme = () => document.documentElement.classList.toggle("dark-mode", isDark());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();

addEventListener("DOMContentLoaded", () => {
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
});
