# Writes OUT, a C++ source that holds FILES as raw strings (see embed_data()).
set(rows "")
list(SORT FILES)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  # A raw string literal may not exceed 64 KiB in portable compilers; g++ and clang take more.
  string(APPEND rows "    {\"${name}\", R\"~~~(${text})~~~\"},\n")
endforeach()
file(WRITE ${OUT}.new "#include \"base/embedded.h\"\n\nnamespace twinforge {\nabsl::Span<const EmbeddedFile> Embedded_${NAME}();\nnamespace {\nconstexpr EmbeddedFile kFiles[] = {\n${rows}    {\"\", \"\"},\n};\n}  // namespace\nabsl::Span<const EmbeddedFile> Embedded_${NAME}() {\n  return absl::MakeConstSpan(kFiles, sizeof(kFiles) / sizeof(kFiles[0]) - 1);\n}\n}  // namespace twinforge\n")
file(COPY_FILE ${OUT}.new ${OUT})
