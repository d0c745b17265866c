// In place of libraries of the server, 36 MB with what they need, that it never calls into: ICU's, with which libxml2
// reads encodings that neither it nor the C library knows, and those of LDAP and RTMP, which libcurl was linked
// against. The server reads cloud storage with both, over HTTPS and in UTF-8. The loader wants each function to be
// there; all fail as their libraries do.

namespace {

constexpr int kIcuFileMissing = 4;  // U_FILE_ACCESS_ERROR: no data for a converter; libxml2 then asks iconv
constexpr int kLdapNoMemory = 1;    // LDAP_URL_ERR_MEM
constexpr int kLdapApiInfo = 0;     // LDAP_OPT_API_INFO

// What curl_version() reads, whatever ldap_get_option() returns.
struct LdapApiInfo {
  int info_version, api_version, protocol_version;
  char** extensions;
  const char* vendor_name;
  int vendor_version;
};

}  // namespace

// ICU_NAME adds ICU's version, which its names have.
#define ICU_JOIN(name, version) name##_##version
#define ICU_VERSIONED(name, version) ICU_JOIN(name, version)
#define ICU_NAME(name) ICU_VERSIONED(name, PYTRITON_ICU_VERSION)
#define NULL_RESULT(name) \
  void* name() { return nullptr; }  // NOLINT(bugprone-macro-parentheses): it is declared here

extern "C" {

void* ICU_NAME(ucnv_open)(const char*, int* error) {
  *error = kIcuFileMissing;
  return nullptr;
}
NULL_RESULT(ICU_NAME(ucnv_close))
NULL_RESULT(ICU_NAME(ucnv_convertEx))
NULL_RESULT(ICU_NAME(ucnv_setFromUCallBack))
NULL_RESULT(ICU_NAME(ucnv_setToUCallBack))
NULL_RESULT(ICU_NAME(UCNV_FROM_U_CALLBACK_STOP))
NULL_RESULT(ICU_NAME(UCNV_TO_U_CALLBACK_STOP))

// RTMP_Alloc without memory ends a transfer.
NULL_RESULT(RTMP_Alloc)
NULL_RESULT(RTMP_Close)
NULL_RESULT(RTMP_Connect1)
NULL_RESULT(RTMP_ConnectStream)
NULL_RESULT(RTMP_Free)
NULL_RESULT(RTMP_Init)
NULL_RESULT(RTMP_Read)
NULL_RESULT(RTMP_SetBufferMS)
NULL_RESULT(RTMP_SetupURL)
NULL_RESULT(RTMP_Write)

// An LDAP URL cannot be parsed, which ends a transfer before anything else is called.
int ldap_url_parse() { return kLdapNoMemory; }
int ldap_pvt_url_scheme2proto() { return -1; }
int ldap_get_option(void*, int option, void* value) {
  if (option != kLdapApiInfo) return -1;
  *static_cast<LdapApiInfo*>(value) = {1, 0, 0, nullptr, "noldap", 0};
  return 0;
}
NULL_RESULT(ber_bvfree)
NULL_RESULT(ber_free)
NULL_RESULT(ber_memfree)
NULL_RESULT(ber_memvfree)
NULL_RESULT(ber_sockbuf_add_io)
NULL_RESULT(ldap_abandon_ext)
NULL_RESULT(ldap_err2string)
NULL_RESULT(ldap_free_urldesc)
NULL_RESULT(ldap_get_attribute_ber)
NULL_RESULT(ldap_get_dn_ber)
NULL_RESULT(ldap_init_fd)
NULL_RESULT(ldap_memfree)
NULL_RESULT(ldap_msgfree)
NULL_RESULT(ldap_msgtype)
NULL_RESULT(ldap_parse_result)
NULL_RESULT(ldap_parse_sasl_bind_result)
NULL_RESULT(ldap_result)
NULL_RESULT(ldap_sasl_bind)
NULL_RESULT(ldap_search_ext)
NULL_RESULT(ldap_set_option)
NULL_RESULT(ldap_start_tls)
NULL_RESULT(ldap_unbind_ext)
}
